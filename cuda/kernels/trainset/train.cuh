// What the kernels that train share.
#pragma once
