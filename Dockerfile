# tests/test_wheel.py runs the COPY and RUN steps of the first stage, CMD and HEALTHCHECK without Docker.

# The digest selects the image (Python 3.13.15, Debian trixie, all platforms); the tag only informs readers. To upgrade it:
# docker buildx imagetools inspect python:3.13-slim
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
WORKDIR /build
COPY pyproject.toml README.md constraints-build.txt constraints-runtime.txt ./
COPY src ./src
COPY sql ./sql
COPY dashboards ./dashboards
RUN python -m venv tools
RUN tools/bin/python -m pip install --quiet --no-compile --require-hashes -r constraints-build.txt
RUN tools/bin/python -m build --wheel --no-isolation
# The image contains only this environment: no pip, no compiler, no development tools.
RUN python -m venv --without-pip /opt/embedsink
RUN tools/bin/python -m pip --python /opt/embedsink install --quiet --require-hashes -r constraints-runtime.txt
RUN tools/bin/python -m pip --python /opt/embedsink install --quiet --no-deps dist/*.whl

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY --from=build /opt/embedsink /opt/embedsink
ENV PATH=/opt/embedsink/bin:$PATH
# glibc: one arena for all threads, and freed blocks of 4 MiB and more return to the system. This saves about 9 MiB.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=4194304 MALLOC_TRIM_THRESHOLD_=4194304
# A fixed uid, so that the host can set the owner of a mounted folder: chown 10001 data.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin embedsink && install --directory --owner 10001 --mode 0750 /data /backup
USER 10001
VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8321, timeout=4); c.request('GET', '/healthz'); exit(c.getresponse().status != 200)"]
# Run an HTTPS proxy in front. embedsink refuses keys over plain HTTP; with --behind-proxy it trusts the proxy's headers.
CMD ["embedsink", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "8321", "--behind-proxy"]
