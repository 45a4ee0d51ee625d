// Every worker fills memory of its GPU by a kernel; all of them get the sums, in order on one stream.
//
//     nvcc -o hello_gpu hello_gpu.cu -lmuster && muster run -n 2 -- ./hello_gpu
#include <cuda_runtime.h>
#include <muster.h>
#include <stdio.h>

static const int count = 1 << 20;

__global__ void fill(float *data, float value)
{
    data[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

int main()
{
    muster_session *session = NULL;
    int gpus = 0;
    if (muster_open(NULL, &session) != MUSTER_OK || cudaGetDeviceCount(&gpus) != cudaSuccess) {
        fprintf(stderr, "hello_gpu: %s\n", session == NULL ? muster_last_error() : "there is no GPU");
        return 1;
    }
    unsigned rank = muster_rank(session, MUSTER_GLOBAL);
    float *data = NULL;
    float sum = 0;
    cudaStream_t stream;
    cudaSetDevice(muster_slot(session) % gpus);
    cudaMalloc(&data, count * sizeof *data);
    cudaStreamCreate(&stream);

    muster_call_options options;
    muster_call_options_init(&options);
    options.stream = stream;
    fill<<<count / 256, 256, 0, stream>>>(data, rank + 1);
    muster_status status = muster_allreduce(session, MUSTER_GLOBAL, data, data, count,
                                            MUSTER_FLOAT32, MUSTER_SUM, &options);
    cudaMemcpyAsync(&sum, data, sizeof sum, cudaMemcpyDeviceToHost, stream);
    cudaError_t error = cudaStreamSynchronize(stream);
    if (status == MUSTER_OK && error == cudaSuccess) {
        printf("rank %u: 1 + ... + %u = %g\n", rank, muster_size(session, MUSTER_GLOBAL), sum);
    } else {
        fprintf(stderr, "hello_gpu: %s, %s\n", muster_last_error(), cudaGetErrorString(error));
    }
    muster_close(session);
    return status != MUSTER_OK || error != cudaSuccess;
}
