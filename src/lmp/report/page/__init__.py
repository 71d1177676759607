"""One self-contained HTML page of a model: tree, figures, sliders; works offline."""
