//! The cases, one module a method of the contract. The doc of a case begins with the bullet it stands for.

pub mod create;
