// Adds two vectors and sums the result, on every GPU. All values are whole numbers that float and double hold exactly,
// so right means equal. The output is filled with NaN first: what no kernel touched still shows it.
// One JSON line for each GPU.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kElements = 1 << 20;
constexpr int kThreads = 256;
constexpr int kWarp = 32;

__global__ void vector_add(const float* a, const float* b, float* out, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    out[i] = a[i] + b[i];
  }
}

__global__ void sum(const float* values, double* total, int count) {
  __shared__ double of_warp[kThreads / kWarp];
  double mine = 0.0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    mine += values[i];
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    mine += __shfl_down_sync(0xffffffffu, mine, offset);
  }
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    double block = 0.0;
    for (int warp = 0; warp < kThreads / kWarp; ++warp) block += of_warp[warp];
    atomicAdd(total, block);
  }
}

struct Found {
  int untouched = 0;
  int wrong = 0;
  int binary_version = 0;  // of the code that ran: made for this GPU, or by the driver from PTX
  int ptx_version = 0;     // what that was made from: an older one betrays the driver's work
  bool sum_is_exact = false;
};

#define TRY(call)                                       \
  do {                                                  \
    const cudaError_t error = (call);                   \
    if (error != cudaSuccess) return error;             \
  } while (false)

cudaError_t run(int device, Found* found) {
  std::vector<float> a(kElements), b(kElements), out(kElements, std::nanf(""));
  double expected = 0.0;
  for (int i = 0; i < kElements; ++i) {
    a[i] = static_cast<float>(i % 4096);
    b[i] = static_cast<float>(3 * (i % 1021));
    expected += a[i] + b[i];
  }
  const size_t bytes = kElements * sizeof(float);
  float *device_a, *device_b, *device_out;
  double *device_total, total = 0.0;
  TRY(cudaSetDevice(device));
  TRY(cudaMalloc(&device_a, bytes));
  TRY(cudaMalloc(&device_b, bytes));
  TRY(cudaMalloc(&device_out, bytes));
  TRY(cudaMalloc(&device_total, sizeof total));
  TRY(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  TRY(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
  TRY(cudaMemcpy(device_out, out.data(), bytes, cudaMemcpyHostToDevice));
  TRY(cudaMemcpy(device_total, &total, sizeof total, cudaMemcpyHostToDevice));

  vector_add<<<256, kThreads>>>(device_a, device_b, device_out, kElements);
  TRY(cudaGetLastError());
  sum<<<256, kThreads>>>(device_out, device_total, kElements);
  TRY(cudaGetLastError());
  TRY(cudaDeviceSynchronize());

  TRY(cudaMemcpy(out.data(), device_out, bytes, cudaMemcpyDeviceToHost));
  TRY(cudaMemcpy(&total, device_total, sizeof total, cudaMemcpyDeviceToHost));
  cudaFuncAttributes attributes;
  TRY(cudaFuncGetAttributes(&attributes, vector_add));
  found->binary_version = attributes.binaryVersion;
  found->ptx_version = attributes.ptxVersion;
  found->sum_is_exact = total == expected;
  for (int i = 0; i < kElements; ++i) {
    found->untouched += std::isnan(out[i]);
    found->wrong += !(out[i] == a[i] + b[i]);
  }
  return cudaSuccess;
}

int main() {
  int devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted != cudaSuccess) {
    std::fprintf(stderr, "cudaGetDeviceCount: %s\n", cudaGetErrorString(counted));
    return 1;
  }
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    Found found;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = run(device, &found);
    std::printf(
        "{\"device\": %d, \"name\": \"%s\", \"sm\": %d, \"binary_version\": %d, \"ptx_version\": %d, \"elements\": %d, "
        "\"untouched\": %d, \"wrong\": %d, \"sum_is_exact\": %s, \"error\": \"%s\"}\n",
        device, properties.name, properties.major * 10 + properties.minor, found.binary_version,
        found.ptx_version, kElements, found.untouched, found.wrong, found.sum_is_exact ? "true" : "false",
        error == cudaSuccess ? "" : cudaGetErrorString(error));
  }
  return 0;
}
