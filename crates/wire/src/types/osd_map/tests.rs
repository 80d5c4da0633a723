//! Maps against maps that stock wrote.
