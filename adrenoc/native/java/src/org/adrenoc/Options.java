package org.adrenoc;

import android.os.CancellationSignal;
import java.io.File;
import java.util.Objects;

/** How to load a model; every method returns the options themselves. */
public final class Options {
  /** A wish to the driver. */
  public enum Level {
    /** The driver decides. */
    UNSET,
    LOW,
    NORMAL,
    HIGH
  }

  private String device;
  private String openclLibrary;
  private String cacheFolder;
  private boolean trustFiles;
  private boolean qualcommPrograms;
  private boolean neverRecord;
  private Level performance = Level.UNSET;
  private Level priority = Level.UNSET;
  private int cancelWithin = 50;
  private CancellationSignal loadSignal; // null: nobody cancels

  /**
   * The OpenCL device: a number, a part of its name, or {@code cpu} for a bundle that carries code
   * for the CPU. Without it: the first with images.
   */
  public Options device(String name) {
    device = name;
    return this;
  }

  /** The OpenCL library to open, in place of the system's; the first load of a process decides. */
  public Options openclLibrary(String path) {
    openclLibrary = path;
    return this;
  }

  /** A folder for built kernels, so that the next load needs no compiler: context.getCacheDir(). */
  public Options cacheFolder(File folder) {
    cacheFolder = folder == null ? null : folder.getPath();
    return this;
  }

  /** Whether the files' digests are left alone; only for bundles that nobody else can write. */
  public Options trustFiles(boolean trusts) {
    trustFiles = trusts;
    return this;
  }

  /** Whether kernels that an older driver of Qualcomm's built are used as they are. */
  public Options qualcommPrograms(boolean uses) {
    qualcommPrograms = uses;
    return this;
  }

  /** Whether every run goes through the virtual machine, and repeats no launches. */
  public Options neverRecord(boolean never) {
    neverRecord = never;
    return this;
  }

  /** How fast the GPU shall run; holds for the process. */
  public Options performance(Level wish) {
    performance = Objects.requireNonNull(wish, "performance is null, expected UNSET");
    return this;
  }

  /** Whether its commands go before those of others, such as what draws the screen. */
  public Options priority(Level wish) {
    priority = Objects.requireNonNull(wish, "priority is null, expected UNSET");
    return this;
  }

  /**
   * How soon a run ends that is cancelled: those that take longer are given to the device in pieces of
   * at most so many milliseconds. 50 unless said; 0: they are not cut, and end as a whole.
   */
  public Options cancelWithin(int milliseconds) {
    if (milliseconds < 0) {
      throw new AdrenocException.BadArgument(
          "cancelWithin is " + milliseconds + ", expected 0 or more");
    }
    cancelWithin = milliseconds;
    return this;
  }

  /**
   * What ends loads: {@link android.os.OperationCanceledException} comes soon then, when the kernels
   * that are being built are. The signal has no other listener meanwhile.
   */
  public Options cancelLoadBy(CancellationSignal signal) {
    loadSignal = signal;
    return this;
  }

  CancellationSignal loadSignal() {
    return loadSignal;
  }

  /** Where files may be made that are gone with the process; null where the app named no folder. */
  File folder() {
    return cacheFolder == null ? null : new File(cacheFolder);
  }

  /** Device, OpenCL library and cache folder, as the native half takes them. */
  byte[][] texts() {
    return new byte[][] {Text.encode(device), Text.encode(openclLibrary), Text.encode(cacheFolder)};
  }

  /** The rest, as the native half takes it. */
  int[] numbers() {
    return new int[] {
      trustFiles ? 1 : 0,
      qualcommPrograms ? 1 : 0,
      neverRecord ? 1 : 0,
      performance.ordinal(),
      priority.ordinal(),
      cancelWithin
    };
  }
}
