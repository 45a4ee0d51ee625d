# The kernels of collectives/reduce as PTX, the assembly language of all NVIDIA GPUs, which ptx.c embeds. PTX 6.0 for
# sm_60 is understood by every driver since CUDA 9 and every GPU since Pascal. In C there are no kernels, only
# functions, so that the last step makes kernels of them.
set(ptx ${CMAKE_CURRENT_BINARY_DIR}/kernels.ptx)
if(PTX_FOUND)
    add_custom_command(OUTPUT ${ptx}
        COMMAND ${MUSTER_CLANG} -x c -std=gnu17 --target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang sm_60
            -Xclang -target-feature -Xclang +ptx60 -ffreestanding -O3 -ffp-contract=off -fno-math-errno
            -fno-trapping-math -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR} -MD -MF ${ptx}.d -MT ${ptx}
            -S ${PROJECT_SOURCE_DIR}/collectives/reduce/kernels.h -o ${ptx}.func
        COMMAND sed "s/^\\.visible \\.func/.visible .entry/" ${ptx}.func > ${ptx}
        DEPENDS ${PROJECT_SOURCE_DIR}/collectives/reduce/kernels.h
        DEPFILE ${ptx}.d
        COMMENT "Compiling the kernels for GPUs" VERBATIM)
    set_source_files_properties(device/cuda/ptx.c PROPERTIES
        OBJECT_DEPENDS ${ptx} COMPILE_DEFINITIONS MUSTER_PTX="${ptx}")
endif()
