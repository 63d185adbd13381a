// Android's plugin 9 compiles Kotlin by itself: no plugin of Kotlin's is named.
plugins {
    id("com.android.application") version "9.0.0" apply false
}
