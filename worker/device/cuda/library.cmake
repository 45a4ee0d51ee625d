# The kernels of GPUs are made by a clang that knows NVIDIA's processors. Without it the CPU reduces what is in
# memory of a GPU.
find_program(MUSTER_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 clang-20)
mark_as_advanced(MUSTER_CLANG)
set(PTX_FOUND FALSE)
set(PTX_MISSING " clang for nvptx64 (in Debian: clang)")
if(MUSTER_CLANG)
    execute_process(COMMAND ${MUSTER_CLANG} --print-targets OUTPUT_VARIABLE targets ERROR_QUIET)
    if(targets MATCHES "nvptx64")
        set(PTX_FOUND TRUE)
        set(PTX_MISSING "")
    endif()
endif()
list(APPEND MUSTER_OPTIONAL "kernels for GPUs           =PTX")
