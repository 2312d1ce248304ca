// Everything that a user's program needs: #include <shardgrad/shardgrad.h>
#pragma once
#include "core/device.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/tensor.h"
