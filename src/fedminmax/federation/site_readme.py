"""What a site's administrator finds in the kit: what to do, what leaves the site, what does not."""

README = """# {site}: taking part in a federation

This folder is yours alone: it holds the private key of `{site}`. Keep it on the machine that
holds your table, readable for you only, and give it to nobody, not even to the coordinator.

1. Install: `pip install 'fedminmax[flare]'`
2. Look at what would leave your site, before anything is sent:
   `fedminmax site check --kit . --data YOUR_TABLE.csv --config fedminmax.toml`
   (the coordinator sends you fedminmax.toml: it says which columns are read, and how)
3. Take part: `fedminmax site start --kit .` - end it with Ctrl-C at any time.

## What leaves your site
- Before the first round: how many rows each group and class has, how often each listed category
  occurs, and the sum and the sum of squares of each number column.
- In each round: the sum of losses and the number of rows by group, and one vector as long as the
  model that says how to change it.

Such sums are not rows, but whoever runs the server sees yours by themselves, and can learn from
them: from a group of one row, for example, its values. `minimum_group` in local/fedminmax.json
refuses groups that are too small.

## What does not
No row, no file name, no path, no log. No code comes to your site: it runs what you installed.

## Network
Your machine connects to {host}:{port} (mutual TLS) and listens to nobody from outside.

## Leaving
End the process and delete this folder. Rounds that you took part in cannot be undone.
"""


def site_readme(site: str, host: str, port: int) -> str:
    """Return the text for one site."""
    return README.format(site=site, host=host, port=port)
