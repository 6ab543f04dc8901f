// What the theme leaves to do for the keyboard and for screen readers.
function complete() {
  // Tables and code that are wider than a phone scroll by themselves: by keyboard, too.
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
    wide.tabIndex = 0;
  }
  // The button that copies a block is no navigation.
  for (const button of document.querySelectorAll("nav.md-code__nav")) {
    button.setAttribute("role", "presentation");
  }
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
}

document$.subscribe(complete);
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
