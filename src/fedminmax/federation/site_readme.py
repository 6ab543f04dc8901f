"""What a site's administrator finds in the kit: what to do, what leaves the site, what does not."""

README = """# {site}: taking part in a federation

This folder is yours alone: it holds the private key of `{site}`. Keep it on the machine that
holds your table, readable for you only, and give it to nobody, not even to the coordinator.

1. Install: `pip install 'fedminmax[cli,flare]'`
2. Look at what would leave your site, before anything is sent:
   `fedminmax site check --kit . --data YOUR_TABLE.csv --minimum-group 20`
   (fedminmax.toml in this folder says which columns are read, and how; if it is not here, the
   coordinator sends it to you)
3. Take part: `fedminmax site start --kit .` - end it with Ctrl-C at any time.

## What leaves your site
- Before the first round: how many rows each group and class has, how often each listed category
  occurs, and the sum and the sum of squares of each number column. If the learning rate was left
  open, also sums over each group's rows from which a safe one is found.
- In each round, of the method and of its baseline: the sum of losses and the number of rows by
  group, and a vector as long as the model that says how to change it.
- After training: by group, the number of held-out rows, the sums of their scores and of products
  of these scores.

Such sums are not rows, but whoever runs the server sees yours by themselves, and can learn from
them: from a group of one row, for example, its values. Groups with fewer rows than
`--minimum-group` are not told of: your site then takes no part, or, with `--small-groups merge`,
puts them into one group. This policy is noted in local/fedminmax.json.

## What does not
No row, no name or path of a table, no log. No code comes to your site: it runs what you installed.

## Network
Your machine connects to {host}:{port} (mutual TLS) and listens to nobody from outside.

## Leaving
End the process and delete this folder. Rounds that you took part in cannot be undone.

More, with what the server could infer: docs/sites.md and docs/threat_model.md of fedminmax.
"""


def site_readme(site: str, host: str, port: int) -> str:
    """Return the text for one site."""
    return README.format(site=site, host=host, port=port)
