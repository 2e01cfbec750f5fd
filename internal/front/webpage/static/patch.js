// Remembers in this browser which files of patches were viewed, by the digest of the
// file's part of the patch: a file that changed is not viewed any more.
const prefix = "bailiwick-viewed:";
const most = 2000; // digests that are kept

function remember(digest, viewed) {
  if (!viewed) {
    localStorage.removeItem(prefix + digest);
    return;
  }
  const kept = Object.keys(localStorage).filter((k) => k.startsWith(prefix));
  kept.sort((a, b) => Number(localStorage.getItem(a)) - Number(localStorage.getItem(b)));
  for (const old of kept.slice(0, Math.max(0, kept.length - most + 1))) {
    localStorage.removeItem(old);
  }
  localStorage.setItem(prefix + digest, String(Date.now()));
}

for (const file of document.querySelectorAll(".file[data-digest]")) {
  const digest = file.dataset.digest;
  const details = file.querySelector("details");
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.className = "viewed";
  box.checked = localStorage.getItem(prefix + digest) !== null;
  label.append(box, " viewed");
  const unseen = document.createElement("span");
  unseen.className = "unseen";
  unseen.textContent = ` ${file.querySelector("h2").textContent}`;
  label.append(unseen);
  file.querySelector(".about").append(" ", label);
  const fold = () => {
    if (details) {
      details.open = !box.checked;
    }
  };
  box.addEventListener("change", () => {
    remember(digest, box.checked);
    fold();
  });
  fold();
}
