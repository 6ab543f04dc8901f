"""Messages between server and sites as bytes, the plan, and checks of replies."""
