# tests/test_wheel.py runs the first stage's COPY and RUN steps, then CMD and HEALTHCHECK, without Docker.

FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md constraints-build.txt constraints-runtime.txt ./
COPY src ./src
COPY sql ./sql
COPY dashboards ./dashboards
RUN python -m venv tools
RUN tools/bin/python -m pip install --quiet --no-compile --require-hashes -r constraints-build.txt
RUN tools/bin/python -m build --wheel --no-isolation
# The image gets this environment and nothing else of this stage: no pip, no compiler, no development tools.
RUN python -m venv --without-pip /opt/embedsink
RUN tools/bin/python -m pip --python /opt/embedsink install --quiet --require-hashes -r constraints-runtime.txt
RUN tools/bin/python -m pip --python /opt/embedsink install --quiet --no-deps dist/*.whl

FROM python:3.13-slim
COPY --from=build /opt/embedsink /opt/embedsink
ENV PATH=/opt/embedsink/bin:$PATH
# A fixed number, so that the owner of files in a mounted folder can be set from outside: chown 10001 data.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin embedsink && install --directory --owner 10001 /data
USER 10001
VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8321/healthz', timeout=4)"]
# Put a proxy that speaks HTTPS in front: embedsink refuses keys over plain HTTP, and --behind-proxy trusts the proxy to have checked.
CMD ["embedsink", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "8321", "--behind-proxy"]
