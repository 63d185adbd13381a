package org.adrenoc;

/** What the native half tells of text, in UTF-8; {@link OnText} is an app's. */
interface OnPiece {
  /** Returns whether to go on. */
  boolean onPiece(byte[] piece);
}
