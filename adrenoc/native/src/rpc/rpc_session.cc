#include "rpc/rpc_session.h"

#include <poll.h>
#include <sys/socket.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <tvm/runtime/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/failure.h"
#include "base/sha256.h"
#include "base/typed_function.h"
#include "files/file.h"
#include "files/safetensors.h"
#include "modules/module.h"
#include "modules/program_build.h"
#include "opencl/cl_api.h"

namespace adrenoc_runtime {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

constexpr uint64_t kStoreBytes = uint64_t{4} << 30;

// The bytes of a socket, of which no message may be longer than allowed.  TVM's own channel makes
// room for whatever length a message claims to have.
class BoundedSocket {
 public:
  BoundedSocket(int descriptor, uint64_t max_message_bytes)
      : descriptor_(descriptor), max_message_bytes_(max_message_bytes) {}

  int64_t send_some(const ffi::Bytes& bytes) const {
    while (true) {
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      return sent < 0 ? -1 : sent;
    }
  }

  // At most `bytes`; nothing once the peer has left.
  ffi::Bytes receive_some(int64_t bytes) {
    buffer_.resize(static_cast<size_t>(std::min<int64_t>(bytes, kPieceBytes)));
    ssize_t received = -1;
    do {
      received = recv(descriptor_, buffer_.data(), buffer_.size(), 0);
    } while (received < 0 && errno == EINTR);
    if (received < 0) TVM_FFI_THROW(RuntimeError) << "The peer vanished: " << std::strerror(errno);
    follow(buffer_.data(), static_cast<size_t>(received));
    return ffi::Bytes(buffer_.data(), static_cast<size_t>(received));
  }

 private:
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  // A message is its length in eight bytes, then that many bytes.
  void follow(const char* data, size_t bytes) {
    while (bytes != 0) {
      if (left_ != 0) {
        const size_t taken = static_cast<size_t>(std::min<uint64_t>(left_, bytes));
        left_ -= taken;
        data += taken;
        bytes -= taken;
        continue;
      }
      length_[have_++] = *data++;
      --bytes;
      if (have_ < sizeof(length_)) continue;
      std::memcpy(&left_, length_, sizeof(left_));
      have_ = 0;
      if (left_ > max_message_bytes_) {
        TVM_FFI_THROW(ValueError) << "The peer announced a message of " << left_
                                  << " bytes; at most " << max_message_bytes_ << " are taken";
      }
    }
  }

  int descriptor_;
  uint64_t max_message_bytes_;
  std::string buffer_;
  char length_[sizeof(uint64_t)] = {};
  size_t have_ = 0;
  uint64_t left_ = 0;
};

// Files that peers sent, kept under their digests so that nothing is sent twice.

// Writes a file, all or nothing.  Throws RuntimeError, with the reason, when it cannot be.
void write_file(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file != nullptr;
  if (written) {
    written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    const int code = errno;
    // A full disk may show only now.
    if (std::fclose(file) != 0) {
      written = false;
    } else if (!written) {
      errno = code;
    }
  }
  if (written) return;
  const std::string reason = std::strerror(errno);
  unlink(path.c_str());
  TVM_FFI_THROW(RuntimeError) << "Cannot keep " << path << ": " << reason;
}

// Throws ValueError for a digest that is none: a peer names content, not places.
class FileStore {
 public:
  // Keeps the files used last, up to `max_bytes`.  The folder is made if its parent is there.
  FileStore(std::string folder, uint64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {
    (void)make_private_folder(folder_);  // keeping a file tells what was wrong
  }

  // Whether the file is there; it then counts as just used.
  [[nodiscard]] bool has(const std::string& sha256) const {
    const std::string file = place(sha256);
    if (!is_usable(file)) return false;
    touch_file(file);
    return true;
  }

  // Moves a file in, from another file system too.  Throws ValueError when it has another digest,
  // and RuntimeError when there is no room or no right to keep it.
  void keep(const std::string& path, const std::string& sha256) const {
    const std::string target = place(sha256);
    if (const std::string wrong = why_not_private(folder_); !wrong.empty()) {
      TVM_FFI_THROW(RuntimeError) << "Cannot keep " << target << ": " << wrong;
    }
    const MappedFile sent(path);
    const std::string seen = sha256_hex(sent.content());
    if (seen != sha256) {
      TVM_FFI_THROW(ValueError) << "The file that was sent has the SHA-256 " << seen
                                << ", expected " << sha256;
    }
    if (std::rename(path.c_str(), target.c_str()) != 0) {
      // Sessions have their folder where temporary files are, which may be a disk of its own.
      const std::string wrong = errno == EXDEV ? write_private_file(target, sent.content())
                                               : std::string(std::strerror(errno));
      if (!wrong.empty()) TVM_FFI_THROW(RuntimeError) << "Cannot keep " << target << ": " << wrong;
      unlink(path.c_str());
    }
    touch_file(target);
    remove_old_files(folder_, max_bytes_);
  }

  // Where a file lies that is there.  Throws ValueError when it is not.
  [[nodiscard]] std::string path(const std::string& sha256) const {
    std::string file = place(sha256);
    if (!is_usable(file)) TVM_FFI_THROW(ValueError) << "The store has no file " << sha256;
    return file;
  }

 private:
  [[nodiscard]] std::string place(const std::string& sha256) const {
    constexpr size_t letters = 64;
    if (sha256.size() != letters ||
        sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      TVM_FFI_THROW(ValueError) << "A file of the store is named by its SHA-256, got \"" << sha256
                                << "\"";
    }
    return folder_ + "/" + sha256;
  }
  // Whether a file is there, and nobody else put it there.
  [[nodiscard]] bool is_usable(const std::string& file) const {
    if (!why_not_private(folder_).empty()) return false;
    try {
      (void)open_private_file(file);
      return true;
    } catch (const Failure&) {
      return false;
    }
  }

  std::string folder_;
  uint64_t max_bytes_;
};

// A peer names files, not places.
std::string place_in(const std::string& folder, const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name == kTraceFile ||
      name.find('/') != name.npos) {
    TVM_FFI_THROW(ValueError) << "A file name of a peer is one name without folders, got \"" << name
                              << "\"";
  }
  return folder + "/" + name;
}

// The constants of files in the store, mapped once.
class StoredConstants {
 public:
  explicit StoredConstants(const FileStore& store) : store_(store) {}

  Tensor load(const std::string& sha256, const std::string& name, DLDevice device,
              const std::string& scope) {
    const StoredTensor& stored = find(sha256, name);
    ffi::Optional<ffi::String> memory;
    if (scope != "global") memory = ffi::String(scope);
    Tensor tensor = Tensor::Empty(ffi::Shape(stored.shape), ffi::StringToDLDataType(stored.dtype),
                                  device, memory);
    if (!stored.data.empty()) tensor.CopyFromBytes(stored.data.data(), stored.data.size());
    return tensor;
  }

 private:
  struct File {
    MappedFile mapped;
    std::map<std::string, StoredTensor> tensors;
  };

  const StoredTensor& find(const std::string& sha256, const std::string& name) {
    auto known = files_.find(sha256);
    if (known == files_.end()) {
      MappedFile mapped(store_.path(sha256));
      auto tensors = read_safetensors(mapped.content(), sha256);
      known = files_.emplace(sha256, File{std::move(mapped), std::move(tensors)}).first;
    }
    const auto found = known->second.tensors.find(name);
    if (found == known->second.tensors.end()) {
      refuse_bundle({"the file ", sha256, " has no constant ", name});
    }
    return found->second;
  }

  const FileStore& store_;
  std::map<std::string, File> files_;
};

template <typename F>
void define(const char* name, F function) {
  publish_function(name, typed(name, std::move(function)), /*override=*/true);
}

// Not when the library is loaded: TVM's Python server defines its own under the same names.
void define_uploads(const std::string& folder) {
  define("tvm.rpc.server.workpath",
         [folder](const std::string& name) { return place_in(folder, name); });
  // TVM's own does not look whether all was written.
  define("tvm.rpc.server.upload", [folder](const std::string& name, const ffi::Bytes& content) {
    write_file(place_in(folder, name), {content.data(), content.size()});
  });
  define("tvm.rpc.server.load_module", [folder](const std::string& name) {
    return opencl::open_library(place_in(folder, name));
  });
}

void define_store(const std::string& folder, const std::string& store_folder) {
  auto store = std::make_shared<FileStore>(store_folder + "/files", kStoreBytes);
  auto constants = std::make_shared<StoredConstants>(*store);
  define("adrenoc.store.has", [store](const std::string& sha256) { return store->has(sha256); });
  define("adrenoc.store.keep", [store, folder](const std::string& name, const std::string& sha256) {
    store->keep(place_in(folder, name), sha256);
  });
  define("adrenoc.store.load_module",
         [store](const std::string& sha256) { return opencl::open_library(store->path(sha256)); });
  define("adrenoc.store.tensor",
         [store, constants](const std::string& sha256, const std::string& name, int device_type,
                            int device_id, const std::string& scope) {
           const DLDevice device{static_cast<DLDeviceType>(device_type), device_id};
           return constants->load(sha256, name, device, scope);
         });
}

// As adrenoc/device/remote.py has it.
constexpr const char* kRefused = "The session was not started: ";
constexpr int kDrainSeconds = 5;

}  // namespace

void refuse_rpc(int descriptor, const std::string& reason) noexcept {
  try {
    const auto answer = ffi::Function::GetGlobalRequired("rpc.ReturnException");
    answer(descriptor, ffi::String(kRefused + reason));
  } catch (const std::exception&) {
    return;  // the peer has left
  }
  shutdown(descriptor, SHUT_WR);
  // Closed while the peer still sends, its answer would be lost on the way.
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(kDrainSeconds);
  char dropped[1 << 12];
  for (pollfd waiting{descriptor, POLLIN, 0}; Clock::now() < end;) {
    const int ready = poll(&waiting, 1, 100);
    if (ready > 0 && recv(descriptor, dropped, sizeof(dropped), 0) <= 0) return;
  }
}

void serve_rpc(int descriptor, const RpcSession& session) {
  if (!session.opencl_library.empty()) opencl::set_library(session.opencl_library);
  open_trace(session.folder + "/" + kTraceFile);
  define_uploads(session.folder);
  if (!session.store.empty()) {
    (void)make_private_folder(session.store);  // using it tells what was wrong
    define_store(session.folder, session.store);
    opencl::set_program_folder(session.store + "/programs");
  }
  auto peer = std::make_shared<BoundedSocket>(descriptor, session.max_message_bytes);
  const auto send =
      typed("send", [peer](const ffi::Bytes& bytes) { return peer->send_some(bytes); });
  const auto receive =
      typed("receive", [peer](int64_t bytes) { return peer->receive_some(bytes); });
  ffi::Function::GetGlobalRequired("rpc.ServerLoop")(send, receive);
}

std::string why_not_served(int descriptor, const RpcSession& session) noexcept {
  try {
    serve_rpc(descriptor, session);
    return "";
  } catch (const ffi::Error& error) {
    return error.message();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TVM_FFI_STATIC_INIT_BLOCK() {
  publish("adrenoc.rpc.serve", [](int descriptor, const std::string& folder,
                                  const std::string& store, int64_t max_message_bytes) {
    serve_rpc(descriptor, {folder, store, {}, static_cast<uint64_t>(max_message_bytes)});
  });
}

}  // namespace adrenoc_runtime
