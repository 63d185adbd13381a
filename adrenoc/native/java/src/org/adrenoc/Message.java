package org.adrenoc;

import java.util.Objects;

/** What somebody says in a conversation. */
public final class Message {
  final String role;
  final String content;

  private Message(String role, String content) {
    this.role = role;
    this.content = Objects.requireNonNull(content, "the content of a message is null");
  }

  /** How the model is to answer; the first of a conversation, or none. */
  public static Message system(String content) {
    return new Message("system", content);
  }

  public static Message user(String content) {
    return new Message("user", content);
  }

  /** What the model has answered. */
  public static Message assistant(String content) {
    return new Message("assistant", content);
  }
}
