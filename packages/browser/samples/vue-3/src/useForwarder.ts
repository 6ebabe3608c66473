import { forward, type Forwarder, type Options } from "@embedsink/browser";
import { onBeforeMount, onUnmounted } from "vue";

/** Forward the events of embeds while the component is mounted. On a server, neither function is called. */
export function useForwarder(options: Options): void {
  let forwarder: Forwarder | undefined;
  onBeforeMount(() => {
    forwarder = forward(options);
  });
  onUnmounted(() => forwarder?.destroy());
}
