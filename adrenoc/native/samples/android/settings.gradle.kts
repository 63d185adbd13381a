pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositoriesMode = RepositoriesMode.FAIL_ON_PROJECT_REPOS
    repositories {
        // What `adrenoc package` wrote: the runtime, and a package for each model.
        maven { url = uri("packages") }
        google()
        mavenCentral()
    }
}

rootProject.name = "adrenoc-sample"
include(":app")
