/**
 * The views of the console. A view joins the navigation by being listed here, under the group it belongs to; groups
 * show in the order of their first view.
 */

import type { ReactNode } from "react";
import { EventsView } from "../events/EventsView";
import { FleetView } from "../fleet/FleetView";
import { GpuView } from "../gpu/GpuView";
import { HostView } from "../host/HostView";
import { PipelineView } from "../pipeline/PipelineView";
import type { Route } from "./router";

export interface View {
  /** The first segment of the route. */
  name: string;
  render: (route: Route) => ReactNode;
  /** How the navigation shows it; a view without is reached from another one. */
  navigation?: { group: string; title: string; icon: string };
  /** The view that the navigation marks instead. */
  partOf?: string;
}

export const VIEWS: readonly View[] = [
  {
    name: "fleet",
    render: (route) => <FleetView route={route} />,
    navigation: { group: "Telemetry", title: "Fleet", icon: "M3 13h4v7H3zM10 8h4v12h-4zM17 3h4v17h-4z" },
  },
  {
    name: "events",
    render: (route) => <EventsView route={route} />,
    navigation: { group: "Telemetry", title: "Events", icon: "M12 3 2 20h20zM11 9h2v5h-2zm0 7h2v2h-2z" },
  },
  {
    name: "pipeline",
    render: (route) => <PipelineView route={route} />,
    navigation: { group: "Telemetry", title: "Pipeline", icon: "M2 5h6v5H2zm7 2h6v2H9zm7-2h6v5h-6zM18 11h2v3h-2zm-2 4h6v5h-6z" },
  },
  { name: "gpus", render: (route) => <GpuView key={route.path[1]} route={route} />, partOf: "fleet" },
  { name: "hosts", render: (route) => <HostView key={route.path[1]} route={route} />, partOf: "fleet" },
];

const FIRST = VIEWS[0] as View;

export function viewOf(route: Route): View | undefined {
  return route.path.length === 0 ? FIRST : VIEWS.find((view) => view.name === route.path[0]);
}
