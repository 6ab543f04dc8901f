"""Names that Markdown would take for markup."""

HOSTILE = (
    "a|b",
    "<script>alert(1)</script>",
    "[x](https://a.b)",
    "![x](y)",
    "*a* _b_ `c` ~~d~~",
    "# a\n\n# b",
    "&lt; &#60;",
    "- a",
    "12. a",
    "===",
    "\\",
    "\\|",
    "$a$",
    "<https://a.b>",
    "hours_per_week",
    "a\x00b\r\nc",
)
