//! zlock-recipes
