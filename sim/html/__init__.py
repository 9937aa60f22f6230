"""Reports to hand on: one HTML file each, with pictures and style inside, that fetches nothing."""
