"use strict";
// Fetches this page again every second and puts the parts that changed in their place. What the
// reader has opened, focused or scrolled stays as it is.
const SECOND = 1000;
const SECONDS_BETWEEN_WORDS = 20;
const pause = document.getElementById("pause");
const lost = document.getElementById("lost");
const announce = document.getElementById("announce");
const shown = new Map();
let tag = "";
let spokenAt = 0;
let spokenState = "";

function isPaused() {
  return pause.getAttribute("aria-pressed") === "true";
}

function parts(root) {
  return [...root.querySelectorAll("[data-part]")];
}

function remember() {
  shown.clear();
  for (const part of parts(document)) shown.set(part.id, part.innerHTML);
}

// A new round every second would drown everything else that is read aloud.
function speak() {
  const state = document.querySelector(".state").textContent;
  const now = Date.now();
  if (state === spokenState && now - spokenAt < SECONDS_BETWEEN_WORDS * SECOND) return;
  spokenAt = now;
  spokenState = state;
  announce.textContent = document.getElementById("words").textContent;
}

function show(fresh) {
  document.title = fresh.title;
  const wanted = parts(fresh).map((part) => part.id).join();
  if (wanted !== [...shown.keys()].join()) {
    // Another section, such as the baseline's: everything below the announcements is new.
    const old = document.querySelectorAll("main > section");
    const place = document.querySelector("main");
    old.forEach((section) => section.remove());
    place.append(...fresh.querySelectorAll("main > section"));
    remember();
  }
  for (const part of parts(fresh)) {
    if (shown.get(part.id) === part.innerHTML) continue;
    shown.set(part.id, part.innerHTML);
    document.getElementById(part.id).replaceChildren(...part.childNodes);
  }
  document.querySelector("h1").textContent = fresh.querySelector("h1").textContent;
  speak();
}

async function look() {
  try {
    if (!isPaused()) {
      const answer = await fetch("./", { headers: { "If-None-Match": tag }, cache: "no-store" });
      const text = await answer.text();
      lost.hidden = true;
      // The reader may have paused while the answer was on its way.
      if (answer.ok && !isPaused()) {
        tag = answer.headers.get("ETag");
        show(new DOMParser().parseFromString(text, "text/html"));
      }
    }
  } catch {
    lost.hidden = false;
  }
  setTimeout(look, lost.hidden ? SECOND : 5 * SECOND);
}

pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(!isPaused()));
});
pause.hidden = false;
remember();
speak();
setTimeout(look, SECOND);
