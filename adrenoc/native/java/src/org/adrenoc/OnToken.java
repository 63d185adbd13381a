package org.adrenoc;

/** Is told each token as it comes, in the thread that asked for them. */
public interface OnToken {
  /** Returns whether to go on. */
  boolean onToken(long token);
}
