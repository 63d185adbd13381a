package android.os;

public class ParcelFileDescriptor {
  public int getFd() {
    throw new UnsupportedOperationException();
  }
}
