// Makes the graph of a run one stop of the keyboard: arrows move between its tasks. The
// place that is looked at stays when the page is refreshed.
const main = document.getElementById("main");
let at = null; // scroll position
let href = ""; // of the node that had the focus

const nodes = () => [...main.querySelectorAll("#graph .node")];
const middle = (n) => ({ x: Number(n.dataset.x), y: Number(n.dataset.y) });

// nearest returns the node that is nearest in a direction, or null.
function nearest(from, dx, dy) {
  const a = middle(from);
  let best = null;
  let least = Infinity;
  for (const n of nodes()) {
    const b = middle(n);
    const along = (b.x - a.x) * dx + (b.y - a.y) * dy;
    const aside = Math.abs((b.x - a.x) * dy) + Math.abs((b.y - a.y) * dx);
    if (n !== from && along > 0 && along + 2 * aside < least) {
      least = along + 2 * aside;
      best = n;
    }
  }
  return best;
}

function choose(node) {
  for (const n of nodes()) {
    n.setAttribute("tabindex", n === node ? "0" : "-1");
  }
}

function arrange() {
  const list = nodes();
  if (list.length === 0) {
    return;
  }
  const before = list.find((n) => n.getAttribute("href") === href);
  choose(before || list.find((n) => n.hasAttribute("aria-current")) || list[0]);
  const region = document.getElementById("graph");
  if (at) {
    region.scrollTo(at.left, at.top);
    if (at.focused && before) {
      before.focus({ preventScroll: true });
    }
  } else {
    list.find((n) => n.hasAttribute("aria-current"))?.querySelector("rect").scrollIntoView({ block: "nearest", inline: "center" });
  }
  region.addEventListener("scroll", remember, { passive: true });
  remember();
}

function remember() {
  const region = document.getElementById("graph");
  at = { left: region.scrollLeft, top: region.scrollTop, focused: region.contains(document.activeElement) };
}

main.addEventListener("focusin", (e) => {
  const node = e.target.closest?.("#graph .node");
  if (node) {
    href = node.getAttribute("href");
    choose(node);
  }
  if (at) {
    at.focused = Boolean(node);
  }
});

main.addEventListener("keydown", (e) => {
  const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
  const node = e.target.closest?.("#graph .node");
  if (!step || !node || e.altKey || e.ctrlKey || e.metaKey || e.shiftKey) {
    return;
  }
  e.preventDefault();
  const next = nearest(node, ...step);
  if (next) {
    next.focus();
    next.querySelector("rect").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
});

new MutationObserver(arrange).observe(main, { childList: true });
arrange();
