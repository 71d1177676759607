/* y = x W^T of one, two or four rows: each weight is loaded once and used for all rows. For ctypes. */
#include <stddef.h>

typedef float lanes __attribute__((vector_size(64), aligned(4)));
enum { LANES = 16, CHAINS = 2 };

static inline __attribute__((always_inline)) void
multiply(const float *w, const float *x, float *y, size_t outputs, size_t inputs, size_t rows)
{
    for (size_t o = 0; o < outputs; o++, w += inputs) {
        lanes sum[4][CHAINS] = {0};
        for (size_t i = 0; i < inputs; i += LANES * CHAINS)
            for (size_t c = 0; c < CHAINS; c++) {
                lanes weight = *(const lanes *)(w + i + LANES * c);
                for (size_t r = 0; r < rows; r++)
                    sum[r][c] += weight * *(const lanes *)(x + r * inputs + i + LANES * c);
            }
        for (size_t r = 0; r < rows; r++) {
            lanes both = sum[r][0] + sum[r][1];
            float total = 0;
            for (size_t l = 0; l < LANES; l++) total += both[l];
            y[r * outputs + o] = total;
        }
    }
}

/* inputs must be a multiple of 32; rows 1, 2 or 4. Returns 0, or -1 for sizes that it does not have. */
int products(const float *w, const float *x, float *y, size_t outputs, size_t inputs, size_t rows)
{
    if (inputs % (LANES * CHAINS)) return -1;
    if (rows == 1) multiply(w, x, y, outputs, inputs, 1);
    else if (rows == 2) multiply(w, x, y, outputs, inputs, 2);
    else if (rows == 4) multiply(w, x, y, outputs, inputs, 4);
    else return -1;
    return 0;
}
