// Shortcuts of one key. ? lists them, and they can be switched off there.
const dialog = document.getElementById("keys");
const toggle = document.getElementById("keys-on");
const off = () => localStorage.getItem("bailiwick-keys") === "off";

if (dialog) {
  toggle.checked = !off();
  toggle.addEventListener("change", () => localStorage.setItem("bailiwick-keys", toggle.checked ? "on" : "off"));
  document.getElementById("keys-open").hidden = false;
  document.getElementById("keys-open").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (e) => {
    if (off() || e.ctrlKey || e.altKey || e.metaKey || dialog.open || e.target.matches?.("input, textarea, select")) {
      return;
    }
    const link = [...document.querySelectorAll("#nav a[data-key]")].find((a) => a.dataset.key === e.key);
    if (e.key === "?") {
      dialog.showModal();
    } else if (e.key === "/") {
      document.getElementById("q").focus();
    } else if (link) {
      location.assign(link.href);
    } else {
      return;
    }
    e.preventDefault();
  });
}
