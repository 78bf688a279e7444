// The kernels by name, compiled for the host, and how their arguments are taken from a launch.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lock_step.h"

#include "../kernels.cu"
#include "../combine.cu"

// One launch: what each thread does, and the pointers among the arguments.
struct Launch {
    std::function<void()> body;
    std::vector<const void*> pointers;
};

// Takes the arguments of a kernel from their addresses, by its signature.
template <auto KERNEL_FUNCTION>
struct Binder;

template <class... Arguments, void (*KERNEL_FUNCTION)(Arguments...)>
struct Binder<KERNEL_FUNCTION> {
    static Launch bind(void** arguments) {
        return bind(arguments, std::index_sequence_for<Arguments...>());
    }

    template <size_t... AT>
    static Launch bind(void** arguments, std::index_sequence<AT...>) {
        std::tuple<Arguments...> values{*(Arguments*)arguments[AT]...};
        Launch launch;
        (note_pointer(launch, std::get<AT>(values)), ...);
        launch.body = [values] { std::apply(KERNEL_FUNCTION, values); };
        return launch;
    }

    template <class Value>
    static void note_pointer(Launch& launch, Value value) {
        if constexpr (std::is_pointer_v<Value>) {
            launch.pointers.push_back(value);
        }
    }
};

struct Function {
    const char* name;
    Launch (*bind)(void**);
};

#define FUNCTION(name) {#name, Binder<name>::bind}

static Function FUNCTIONS[] = {
    FUNCTION(average),
    FUNCTION(bf16_decode_sum),
    FUNCTION(bf16_encode),
    FUNCTION(bf16_expand),
    FUNCTION(bf16_reduce_encode),
    FUNCTION(combine),
    FUNCTION(compensate),
    FUNCTION(int_decode_sum),
    FUNCTION(int_encode),
    FUNCTION(int_encode_shared),
    FUNCTION(int_expand),
    FUNCTION(int_expand_shared),
    FUNCTION(int_magnitudes),
    FUNCTION(int_reduce_encode),
    FUNCTION(multiply),
    FUNCTION(sign_decode_sum),
    FUNCTION(sign_encode),
    FUNCTION(sign_expand),
    FUNCTION(sign_pack),
    FUNCTION(sign_reduce_encode),
    FUNCTION(sign_reduce_global),
    FUNCTION(sum),
};
