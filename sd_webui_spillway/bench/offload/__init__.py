"""The step of a model whose weights do not fit, under our profiles and under other tools' offloading."""
