"""What travels between server and sites: messages as bytes, the plan, and checks of replies."""
