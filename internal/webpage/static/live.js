// Keeps a page current while it is visible. One tab of all holds the stream of entries,
// since browsers allow few connections to a server; it tells the others.
const main = document.getElementById("main");
const about = main.dataset.live;
const channel = new BroadcastChannel("bailiwick-entries");
let newest = "";
let due = 0;

// concerns reports whether an entry can change what this page shows.
function concerns(entry) {
  const [member, id] = (about || "").split("=");
  return member === "all" || (id !== undefined && entry[member] === id);
}

// edited reports whether the user has filled in a field that is not sent yet.
const edited = (e) => (e.type === "radio" || e.type === "checkbox" ? e.checked !== e.defaultChecked :
  e.options ? [...e.options].some((o) => o.selected && !o.defaultSelected && e.selectedIndex > 0) : e.value !== e.defaultValue);

// busy reports whether the user is in the middle of a form of the page, or of a click.
const busy = () => main.querySelector(":active") !== null ||
  (main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) ||
  [...main.querySelectorAll("form input, form textarea, form select")].some(edited);

function entryWritten({ seq, entry }) {
  newest = seq;
  if (concerns(entry)) {
    later(500);
  }
}

function later(wait) {
  due ||= setTimeout(refresh, wait);
}

// refresh shows the page anew. The browser parses the answer as a document, which runs
// no script.
function refresh() {
  clearTimeout(due);
  due = 0;
  if (busy()) {
    later(2000);
    return;
  }
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    const fresh = request.response?.getElementById("main");
    if (request.status === 401) {
      location.reload();
    } else if (request.status === 200 && fresh && !busy()) {
      const open = [...main.querySelectorAll("details")].map((d) => d.open);
      const focused = document.activeElement?.id;
      main.replaceChildren(...fresh.childNodes);
      main.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
      if (focused && main.querySelector("#" + CSS.escape(focused))) {
        document.getElementById(focused).focus({ preventScroll: true });
      }
    }
  };
  request.send();
}

// stream holds the stream until the page is hidden.
function stream() {
  return new Promise((done) => {
    const source = new EventSource("/events" + (newest ? "?after=" + newest : ""));
    source.onopen = () => { // pages that were read before may lack entries that it does not bring
      channel.postMessage({ opened: true });
      refresh();
    };
    source.onmessage = (m) => {
      const message = { seq: m.lastEventId, entry: JSON.parse(m.data) };
      channel.postMessage(message);
      entryWritten(message);
    };
    const hidden = () => {
      if (document.hidden) {
        document.removeEventListener("visibilitychange", hidden);
        source.close();
        done();
      }
    };
    document.addEventListener("visibilitychange", hidden);
    hidden();
  });
}

let waiting = null;
function follow() {
  if (document.hidden) {
    waiting?.abort();
    waiting = null;
  } else if (!waiting) {
    const mine = (waiting = new AbortController());
    navigator.locks.request("bailiwick-entries", { signal: mine.signal }, () => stream())
      .catch(() => {}) // hidden before it was this tab's turn
      .finally(() => { if (waiting === mine) { waiting = null; follow(); } });
  }
}

if (about) {
  channel.onmessage = (m) => (m.data.opened ? refresh() : entryWritten(m.data));
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) {
      refresh();
    }
  });
  follow();
  later(500); // another tab told of entries between the reading of this page and now
}
