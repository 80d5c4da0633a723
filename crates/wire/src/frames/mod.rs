//! msgr2.1 framing, in crc and secure mode.
