plugins {
    id("com.android.application")
}

android {
    namespace = "org.adrenoc.sample"
    compileSdk = 36

    defaultConfig {
        applicationId = "org.adrenoc.sample"
        minSdk = @MIN_SDK@
        targetSdk = 36
        versionCode = 1
        versionName = "1.0"
        // Only for these is there a runtime.
        ndk { abiFilters += listOf(@ABIS@) }
    }

    // A bundle is mapped from the APK as it lies there.
    androidResources { noCompress += "tar" }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

dependencies {
@DEPENDENCIES@
    implementation("androidx.activity:activity-ktx:1.10.1")
    implementation("androidx.camera:camera-camera2:1.6.2")
    implementation("androidx.camera:camera-lifecycle:1.6.2")
    implementation("androidx.camera:camera-view:1.6.2")
    implementation("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.10.2")
}
