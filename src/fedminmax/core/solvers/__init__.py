"""Small convex problems: projections, a maximum of quadratics, columns far from 0."""
