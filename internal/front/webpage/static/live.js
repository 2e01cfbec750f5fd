// Keeps a page current while it is visible. One tab of all holds the stream of entries,
// since browsers allow few connections to a server; it tells the others.
const main = document.getElementById("main");
const stale = document.getElementById("stale");
const about = main.dataset.live;
const channel = new BroadcastChannel("bailiwick-entries");
let known = main.dataset.newest !== "";
let newest = Number(main.dataset.newest); // number of the newest entry that this page can show
let due = 0;
let source = null; // the stream, in the tab that holds it
let lost = { stream: false, read: false }; // what the page cannot reach
let sent = false; // a form was sent: its answer replaces the page

// concerns reports whether an entry can change what this page shows.
function concerns(entry) {
  const [member, id] = (about || "").split("=");
  return member === "all" || (id !== undefined && entry[member] === id);
}

// edited reports whether the user has filled in a field that is not sent yet.
const edited = (e) => (e.type === "radio" || e.type === "checkbox" ? e.checked !== e.defaultChecked :
  e.options ? [...e.options].some((o) => o.selected && !o.defaultSelected && e.selectedIndex > 0) : e.value !== e.defaultValue);

// busy reports whether the user is in the middle of a form of the page, or of a click.
const busy = () => sent || main.querySelector(":active") !== null ||
  (main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) ||
  [...main.querySelectorAll("form input, form textarea, form select")].some(edited);

// mark says on the page since when it may be out of date.
function mark(what, isLost) {
  lost[what] = isLost;
  if (!lost.stream && !lost.read) {
    stale.textContent = "";
  } else if (stale.textContent === "") {
    stale.textContent = `No connection to the service since ${new Date().toLocaleTimeString()}: what this page shows may be out of date. Trying again.`;
  }
}

function entryWritten({ seq, entry }) {
  if (known && seq <= newest) {
    return;
  }
  newest = seq;
  if (concerns(entry)) {
    later(500);
  }
}

// seen compares the newest entry that another reader saw with what this page can show.
function seen(seq) {
  if (!known || seq !== newest) {
    refresh();
  }
  known = true;
  newest = seq;
}

function later(wait) {
  due ||= setTimeout(refresh, wait);
}

// refresh reads the page again. The browser parses the answer as a document, which runs
// no script.
function refresh() {
  clearTimeout(due);
  due = 0;
  if (busy()) {
    later(2000);
    return;
  }
  const failed = () => {
    mark("read", true);
    later(5000);
  };
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.onerror = failed;
  request.onload = () => {
    const fresh = request.response?.getElementById("main");
    if (request.status === 401) {
      location.reload();
    } else if (request.status >= 500) {
      failed();
    } else if (request.status === 200 && fresh) {
      mark("read", false);
      if (!busy()) {
        show(fresh);
      }
    }
  };
  request.send();
}

// show replaces what the page shows.
function show(fresh) {
  const open = [...main.querySelectorAll("details")].map((d) => d.open);
  const focused = document.activeElement?.id;
  main.replaceChildren(...fresh.childNodes);
  main.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
  if (focused && main.querySelector("#" + CSS.escape(focused))) {
    document.getElementById(focused).focus({ preventScroll: true });
  }
}

// stream holds the stream until the page is hidden.
function stream() {
  return new Promise((done) => {
    let retry = 0;
    let wait = 1000;
    const connect = () => {
      source = new EventSource("/events" + (known ? "?after=" + newest : ""));
      source.addEventListener("newest", (m) => {
        wait = 1000;
        if (!known || lost.stream || Number(m.data) < newest) {
          seen(Number(m.data));
        }
        mark("stream", false);
        channel.postMessage({ newest });
      });
      source.onmessage = (m) => {
        const message = { seq: Number(m.lastEventId), entry: JSON.parse(m.data) };
        channel.postMessage(message);
        entryWritten(message);
      };
      source.onerror = () => {
        mark("stream", true);
        channel.postMessage({ lost: true });
        if (source.readyState === EventSource.CLOSED) { // after an answer other than 200, the browser does not try again
          refresh();
          retry = setTimeout(connect, wait);
          wait = Math.min(2 * wait, 30000);
        }
      };
    };
    const hidden = () => {
      if (document.hidden) {
        document.removeEventListener("visibilitychange", hidden);
        clearTimeout(retry);
        source.close();
        source = null;
        done();
      }
    };
    connect();
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

function heard({ data }) {
  if (data.asks) {
    if (source) { // a page that has just loaded may lack entries that this tab has heard of
      channel.postMessage(lost.stream ? { lost: true } : { newest });
    }
  } else if (data.lost) {
    mark("stream", true);
  } else if (data.newest !== undefined) {
    if (lost.stream || data.newest !== newest) {
      seen(data.newest);
    }
    mark("stream", false);
  } else {
    entryWritten(data);
  }
}

if (about) {
  channel.onmessage = heard;
  channel.postMessage({ asks: true });
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) {
      refresh();
    }
  });
  follow();
}

// A second click on a button sends nothing: the answer to the first one is on its way.
document.addEventListener("submit", (e) => {
  if (sent) {
    e.preventDefault();
  }
  sent = e.target.method === "post";
});
addEventListener("pageshow", () => { sent = false; });
