//! zlock-mem
