//! Where an object lives: object hash, CRUSH, OSDMap to up and acting sets.
