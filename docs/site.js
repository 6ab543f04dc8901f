// Tables that are wider than a phone scroll by themselves; with this, by keyboard, too.
document$.subscribe(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) {
    wide.tabIndex = 0;
  }
});
