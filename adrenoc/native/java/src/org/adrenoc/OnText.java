package org.adrenoc;

/** Is told text as it comes, in pieces that are whole letters, in the thread that asked for it. */
public interface OnText {
  /** Returns whether to go on. */
  boolean onText(String piece);
}
