"""moed on a Ray cluster; docs/ray.md."""
