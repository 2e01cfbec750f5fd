// Shows all lines of a log in one scrolling region: only the rows in view exist, and the
// server sends their text in windows. Follow keeps the end in view while the attempt
// runs. Without script the page has the same lines by pages.
const region = document.getElementById("log");
const height = 20; // of a row, in pixels, as in view.css
const size = 500; // lines of a window
const kept = 20; // windows
const most = 800000; // rows: browsers bound the height of an element

function start() {
  const list = region.querySelector("ol");
  const address = `/dispatches/${encodeURIComponent(region.dataset.dispatch)}/log/lines?attempt=${region.dataset.attempt}`;
  const status = document.getElementById("log-state");
  const button = document.getElementById("follow");
  const windows = new Map(); // by number of the first line; a promise or the lines
  const rows = new Map(); // in the list, by number
  let total = Number(region.dataset.total);
  let ended = region.dataset.ended === "true";
  let follows = false;
  let chosen = 0;
  let timer = 0;
  let due = false;

  async function load(first) {
    const answer = await fetch(`${address}&from=${first}`);
    if (!answer.ok) {
      throw new Error(`the server answered ${answer.status}`);
    }
    const got = await answer.json();
    grow(got);
    return got.lines;
  }

  function grow(got) {
    if (got.total !== total || got.ended !== ended) {
      if (got.ended && !ended) {
        windows.clear(); // numbers are final now
      }
      windows.delete(1 + Math.floor(Math.max(total - 1, 0) / size) * size); // it may have been incomplete
      total = got.total;
      ended = got.ended;
      list.style.height = `${total * height}px`;
    }
    button.hidden = ended;
    status.textContent = `${total} lines${ended ? "" : " so far"}`;
    later();
  }

  function lines(first) {
    if (!windows.has(first)) {
      windows.set(first, load(first).then((got) => {
        windows.set(first, got);
        later();
      }, (err) => {
        windows.delete(first);
        status.textContent = `Lines cannot be read: ${err.message}`;
      }));
      for (const old of [...windows.keys()].slice(0, Math.max(0, windows.size - kept))) {
        windows.delete(old);
      }
    }
    const got = windows.get(first);
    return Array.isArray(got) ? got : [];
  }

  function text(name, value, className) {
    const e = document.createElement(name);
    e.textContent = value;
    if (className) {
      e.className = className;
    }
    return e;
  }

  function row(number, line) {
    const li = document.createElement("li");
    li.className = "line";
    li.id = `L${number}`;
    li.style.top = `${(number - 1) * height}px`;
    li.setAttribute("aria-setsize", String(total));
    li.setAttribute("aria-posinset", String(number));
    const a = text("a", String(number));
    a.href = `#L${number}`;
    li.append(a, " ");
    if (number === chosen) {
      li.classList.add("chosen-line");
    }
    if (!line) {
      return li;
    }
    li.dataset.kind = line.kind;
    if (line.kind !== "agent") {
      li.append(text("span", line.kind === "verify" ? "verify " : "log ", "who"));
    }
    const code = document.createElement("code");
    for (const part of line.parts || []) {
      if (part.hidden) {
        const e = text("span", part.text, "hides");
        e.title = part.hidden;
        code.append(e);
      } else if (part.style) {
        code.append(text("span", part.text, part.style));
      } else {
        code.append(part.text);
      }
    }
    if (line.cut) {
      code.append(text("span", ` ${line.cut} bytes more`, "cut"));
    }
    li.append(code);
    return li;
  }

  // draw keeps the rows that stay in view, in their order: making all anew takes more than a frame.
  function draw() {
    due = false;
    const first = Math.max(1, Math.floor(region.scrollTop / height) - 20);
    const last = Math.min(total, Math.ceil((region.scrollTop + region.clientHeight) / height) + 20);
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : "";
    for (const [n, old] of rows) {
      if (n < first || n > last || old.total !== total) {
        old.li.remove();
        rows.delete(n);
      }
    }
    for (let n = first; n <= last; n++) {
      const begin = 1 + Math.floor((n - 1) / size) * size;
      const line = lines(begin)[n - begin];
      const old = rows.get(n);
      if (old && old.line === line && old.chosen === (n === chosen)) {
        continue;
      }
      old?.li.remove();
      const li = row(n, line);
      list.insertBefore(li, list.children[n - first] || null);
      rows.set(n, { li, line, total, chosen: n === chosen });
    }
    if (focused && !list.contains(document.activeElement)) {
      (list.querySelector(`a[href="${focused}"]`) || region).focus({ preventScroll: true });
    }
    if (follows) {
      region.scrollTop = region.scrollHeight;
    }
  }

  function later() {
    if (!due) {
      due = true;
      requestAnimationFrame(draw);
    }
  }

  function goTo() {
    const number = Number(/^#L(\d+)$/.exec(location.hash)?.[1]);
    if (number >= 1 && number <= total) {
      chosen = number;
      region.scrollTop = Math.max(0, (number - 1) * height - region.clientHeight / 2);
    }
    later();
  }

  async function poll() {
    clearTimeout(timer);
    if (ended || !follows || document.hidden) {
      return;
    }
    try {
      await load(Math.max(1, total));
    } catch (err) {
      status.textContent = `Lines cannot be read: ${err.message}`;
    }
    timer = setTimeout(poll, 1000);
  }

  button.addEventListener("click", () => {
    follows = !follows;
    button.setAttribute("aria-pressed", String(follows));
    later();
    poll();
  });
  document.addEventListener("visibilitychange", poll);
  region.addEventListener("scroll", later, { passive: true });
  addEventListener("resize", later);
  addEventListener("hashchange", goTo);
  region.classList.add("virtual");
  document.getElementById("log-pages").hidden = true;
  list.style.height = `${total * height}px`;
  button.hidden = ended;
  region.scrollTop = (Number(region.dataset.from) - 1) * height;
  list.replaceChildren();
  goTo();
  draw(); // before the browser scrolls to the row of the link: the rows of the page have lost their places
}

if (region && Number(region.dataset.total) <= most) {
  start();
}
