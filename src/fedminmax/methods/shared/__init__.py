"""What several methods share: checks, replies, draws, fits, and the servers that look ahead."""
