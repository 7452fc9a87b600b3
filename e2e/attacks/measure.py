# What a neighbour feels: the median time of a little work, in microseconds, over so many seconds.
import statistics
import sys
import time

samples, end = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    start = time.perf_counter_ns()
    total = 0
    for number in range(3000):
        total += number * number
    samples.append(time.perf_counter_ns() - start)
    time.sleep(0.004)
print(statistics.median(samples) / 1000)
