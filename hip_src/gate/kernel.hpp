// Gate of squeeze-and-excitation: the means over an image's pixels, two layers of one pixel, and
// their activations, by a cluster of blocks for each image.
//
// Order of additions, as the reference backend has it. A thread sums the vectors of its unit (of
// channels, or of a plane) that lie `parts * sharers` apart, ascending; the parts of a channel are
// added in runs, ascending, then the runs, then the sharers of its pixels. Each block multiplies
// the means of its own channels by their columns of the first filter: a lane its vectors ascending,
// their elements ascending; of the lanes of a row each half is added to the other; then the blocks,
// ascending; then the bias. In the same way, of whole rows, the second filter's.
#pragma once

#include "gate/rows.hpp"
#include "gate/shape.hpp"
#include "support/mailbox.hpp"
#include "support/requantised.hpp"

namespace dscore {

template <class T>
struct GateArguments {
  const void *x, *w, *bias, *second_w, *second_bias;
  void *out;
  __device__ MeanOfSums<T> of(int area) const { return MeanOfSums<T>(area); }
};
template <>
struct GateArguments<int8_t> {
  const void *x, *w, *bias, *second_w, *second_bias, *multiplier, *zero_point;
  void *out;
  __device__ MeanOfSums<int8_t> of(int area) const { return {area, multiplier, zero_point}; }
};

// What an epilogue says of the first layer: whether it has a bias, and its activation.
template <class Epilogue>
struct FirstLayer;
template <class T, bool Bias, Activation activation, Residual residual, bool Scaled>
struct FirstLayer<Epilogue<T, Bias, activation, residual, Scaled>> {
  static constexpr bool biased = Bias;
  static __device__ inline float activate(float sum) {
    return Epilogue<float, false, activation>::activate(sum);
  }
};
template <class Out, bool Bias, Activation activation, bool Residual, bool Scaled, bool Table>
struct FirstLayer<Requantised<Out, Bias, activation, Residual, Scaled, Table>>
    : FirstLayer<Epilogue<Out, Bias, activation>> {};

template <class T, class Tiling, class Layer, class Shape_, class Epilogue_,
          Activation activation = Activation::sigmoid>
struct Gate : KernelOn<T, GateArguments<T>, 1u << 2 | 1u << 4> {
  using Shape = Shape_;
  using t = Tiling;
  using Arguments = GateArguments<T>;
  using W = typename Epilogue_::Result;
  using First = FirstLayer<Epilogue_>;
  using Second = Epilogue<float, false, activation>;
  using Sum = typename MeanOfSums<T>::Sum;
  static constexpr int threads = t::threads, wavefront = t::wavefront, layout = t::layout;
  static constexpr int cluster = t::cluster, alignment = 16;
  static constexpr bool works_ahead = true, reads_constants_first = true;
  // Vectors of a filter's row: of the columns of a block, which begin with one and are whole ones
  // also where the last sharer of a slice has fewer; and of whole rows.
  static constexpr int vector_of(int numbers) {
    int vector = 16 / static_cast<int>(sizeof(W));
    while (numbers % vector) vector /= 2;
    return vector;
  }
  static constexpr int first_vector = vector_of(t::channels | t::slice | t::share);
  static constexpr int second_vector = vector_of(t::between);
  using FirstProducts = RowProducts<threads, wavefront, t::between, t::share, first_vector>;
  using SecondProducts = RowProducts<threads, wavefront, t::share, t::between, second_vector>;
  using FirstRows = FilterRows<FirstProducts, W, first_vector, threads, wavefront>;
  using SecondRows = FilterRows<SecondProducts, W, second_vector, threads, wavefront>;
  // LDS: sums of the parts; of a share's pixels by each sharer; means of the share; sums of the
  // first layer by each block, and this layer's results; mailboxes for what other blocks send.
  static constexpr int rounded_up(int numbers) { return ceil_div(numbers, 8) * 8; }
  static constexpr int shared_at = rounded_up(t::parts * t::slice);
  static constexpr int means_at =
      shared_at + (t::sharers > 1 ? rounded_up(t::sharers * t::share) : 0);
  static constexpr int partial_at = means_at + rounded_up(t::share);
  static constexpr int between_at = partial_at + rounded_up(cluster * t::between);
  static constexpr int mailboxes_at = between_at + rounded_up(t::between);
  static constexpr int mailbox_bytes =
      cluster > 1 ? 2 * static_cast<int>(sizeof(TransferBarrier)) : 0;
  static constexpr int lds_bytes = 4 * mailboxes_at + mailbox_bytes;
  // Of loads that a thread has under way before it adds what the first has brought.
  static constexpr int loads = 8;

  static __host__ __device__ int area(const Shape &s) { return s.height * s.width; }
  static __host__ __device__ int blocks(const Shape &s) { return cluster * s.batch; }
  static __device__ int rank() { return blockIdx.x % cluster; }
  static __device__ int image() { return blockIdx.x / cluster; }
  static __device__ int slice() { return rank() % t::slices; }
  static __device__ int sharer() { return rank() / t::slices; }

  const Arguments &args;
  const Shape &s;
  // The channels with which this block goes on.
  int first, count;
  float *lds;
  Mailbox<t::sharers> of_sharers;
  Mailbox<cluster> of_blocks;

  __device__ Gate(const Arguments &given, const Shape &shape)
      : args(given), s(shape), first(slice() * t::slice + sharer() * t::share),
        count(greatest(least(least(t::share, t::slice - sharer() * t::share),
                             t::channels - first), 0)),
        lds(block_lds<float, lds_bytes / 4>()),
        of_sharers{reinterpret_cast<TransferBarrier *>(lds + mailboxes_at)},
        of_blocks{of_sharers.barrier + 1} {
    if constexpr (cluster == 1) return;
    if (threadIdx.x == 0) {
      of_sharers.prepare(t::sharers * count * 4);
      of_blocks.prepare(cluster * t::between * 4);
    }
    announce_block();
  }

  static __device__ void fetch_ahead(const Arguments &args, const Shape &s) {
    prefetch_share<W>(args.w, t::channels * t::between, blocks(s));
    prefetch_share<W>(args.second_w, t::channels * t::between, blocks(s));
  }

  __device__ void run(const Arguments &, const KernelBefore &before) {
    before.wait_for_constants();
    const W *w = static_cast<const W *>(args.w), *second_w = static_cast<const W *>(args.second_w);
    const W *bias = First::biased ? static_cast<const W *>(args.bias) : nullptr;
    const W *second_bias =
        First::biased ? static_cast<const W *>(args.second_bias) + first : nullptr;
    // All that does not depend on the means is asked for before them.
    const MeanOfSums<T> mean = args.of(area(s));
    FirstRows first_rows(w + first, nullptr, t::channels, t::between, count);
    SecondRows second_rows(second_w + first * t::between, second_bias, t::between, count,
                           t::between);
    constexpr int rounds = ceil_div(t::between, threads);
    Read<W, 1> addends[rounds];
    DSCORE_UNROLL
    for (int i = 0; i < rounds; i++) {
      const int row = threadIdx.x + i * threads;
      addends[i].from(bias + row, First::biased && row < t::between);
    }
    before.wait_for_images();
    Sum *sums = reinterpret_cast<Sum *>(lds);
    sum_pixels(sums);
    float *means = lds + means_at, *partial = lds + partial_at, *between = lds + between_at;
    if constexpr (cluster > 1) wait_for_cluster();
    join(sums, mean, means);
    first_rows.multiply(means, [&](int row, float sum) {
      DSCORE_UNROLL
      for (int to = 0; to < cluster; to++)
        of_blocks.send(partial + rank() * t::between + row, to, sum);
    });
    of_blocks.wait();
    DSCORE_UNROLL
    for (int i = 0; i < rounds; i++) {
      const int row = threadIdx.x + i * threads;
      if (row < t::between)
        between[row] = First::activate(sum_of_all<cluster>(partial + row, t::between) +
                                       static_cast<float>(addends[i].elements().at[0]));
    }
    __syncthreads();
    W *out = static_cast<W *>(args.out) + image() * t::channels + first;
    second_rows.multiply(between, [&](int row, float sum) {
      out[row] = static_cast<W>(Second::activate(sum));
    });
  }

  // Of numbers that several have sent, so many of each.
  template <int Senders, class Number>
  static __device__ Number sum_of_all(const Number *sent, int of_each) {
    Number sum = sent[0];
    DSCORE_UNROLL
    for (int other = 1; other < Senders; other++) sum += sent[other * of_each];
    return sum;
  }

  // Sums of each part's pixels: to LDS, the channels of a part side by side.
  __device__ void sum_pixels(Sum *sums) const {
    const int thread = threadIdx.x;
    const int column = t::last ? thread % t::columns : thread / t::parts;
    const int part = t::last ? thread / t::columns : thread % t::parts;
    if (t::last ? part >= t::parts : column >= t::columns) return;
    DSCORE_ROLLED
    for (int unit = column; unit < t::slice_units; unit += t::columns) {
      const int channel = slice() * t::slice + unit * t::unit;
      Sum own[t::unit] = {};
      if (channel < t::channels) sum_unit(channel, sharer() * t::parts + part, own);
      DSCORE_UNROLL
      for (int i = 0; i < t::unit; i += t::quad) {
        Pack<Sum, t::quad> several;
        DSCORE_UNROLL
        for (int k = 0; k < t::quad; k++) several.at[k] = own[i + k];
        write_vector(sums + part * t::slice + i / t::quad * t::row + unit * t::quad, several);
      }
    }
  }
  // Of the channels from `channel` on, vectors that lie so far apart from a place on.
  __device__ void sum_unit(int channel, int place, Sum (&own)[t::unit]) const {
    constexpr int shares = t::parts * t::sharers, width = t::vector;
    const int end = t::last ? area(s) : area(s) / width;
    const T *x = static_cast<const T *>(args.x);
    x += t::last ? image() * area(s) * t::channels + channel
                 : (image() * t::channels + channel) * area(s);
    const int step = t::last ? t::channels : width;
    DSCORE_ROLLED
    for (int at = place; at < end; at += loads * shares) {
      decltype(elements_or_zeros<T, width>(x, true)) read[loads];
      DSCORE_UNROLL
      for (int i = 0; i < loads; i++)
        read[i] = elements_or_zeros<T, width>(x + (at + i * shares) * step,
                                              at + i * shares < end);
      if constexpr (t::last) {
        add_each(read, own);
      } else {
        DSCORE_UNROLL
        for (int i = 0; i < loads; i++) add_elements(read[i], own[0]);
      }
    }
  }

  // Adds the parts and makes the means of the block's share.
  __device__ void join(Sum *sums, const MeanOfSums<T> &mean, float *means) const {
    __syncthreads();
    if constexpr (t::runs > 1) join_runs(sums);
    constexpr int left = t::runs > 1 ? t::runs : t::parts;
    DSCORE_ROLLED
    for (int at = threadIdx.x; at < t::slice; at += threads) {
      const int channel = t::channel_at(at), owner = channel / t::share;
      if (slice() * t::slice + channel >= t::channels) continue;
      const Sum sum = sum_of(sums + at, left);
      if constexpr (t::sharers == 1) means[channel] = mean(sum);
      else
        of_sharers.send(shared() + sharer() * t::share + channel % t::share,
                        owner * t::slices + slice(), sum);
    }
    if constexpr (t::sharers > 1) {
      of_sharers.wait();
      DSCORE_ROLLED
      for (int c = threadIdx.x; c < count; c += threads)
        means[c] = mean(sum_of_all<t::sharers>(shared() + c, t::share));
    }
    __syncthreads();
  }
  // Sums of each sharer, of the channels with which this block goes on.
  __device__ Sum *shared() const { return reinterpret_cast<Sum *>(lds + shared_at); }
  static __device__ Sum sum_of(const Sum *sums, int parts) {
    Sum sum = sums[0];
    DSCORE_UNROLL_FEW
    for (int part = 1; part < parts; part++) sum += sums[part * t::slice];
    return sum;
  }
  // Adds the parts of each run, whose sum takes the place of a part.
  static __device__ void join_runs(Sum *sums) {
    const int c = threadIdx.x % t::slice, run = threadIdx.x / t::slice;
    const int begin = run * t::of_run, parts = least(t::of_run, t::parts - begin);
    Sum sum = {};
    if (run < t::runs && parts > 0) sum = sum_of(sums + begin * t::slice + c, parts);
    __syncthreads();
    if (run < t::runs) sums[run * t::slice + c] = sum;
    __syncthreads();
  }
};

}  // namespace dscore
