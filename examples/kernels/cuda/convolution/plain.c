/* What is right: every result from the whole filter, in double precision. */
void plain(const float *image, const float *filter, float *result, int h, int w) {
  int image_w = w + 16;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      double sum = 0;
      for (int i = 0; i < 17; i++)
        for (int j = 0; j < 17; j++) sum += (double)image[(long long)(y + i) * image_w + x + j] * filter[i * 17 + j];
      result[(long long)y * w + x] = (float)sum;
    }
}
