// What is left to do when a signal asks the server to end.
#pragma once

namespace adrenoc_rpc {

// From now on SIGTERM, SIGINT and SIGHUP make a descriptor readable instead of ending this process;
// returns it.  Throws std::runtime_error.
[[nodiscard]] int catch_endings();

// The signal that came, 0 as long as none did.
[[nodiscard]] int ending_signal();

// Ends this process by the signal, as one that had not caught it.
[[noreturn]] void end_by(int signal_number);

// For the process of a session: signals end it again as they do any other.
void forget_endings();

}  // namespace adrenoc_rpc
